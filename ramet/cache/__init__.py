"""Which KV slot holds which token, and who owns it."""

from ramet.cache.manager import CacheManager, Lease
from ramet.cache.prefix import NoPrefixCache, PrefixCache, RadixPrefixCache
from ramet.cache.slots import SlotAllocator

__all__ = ["CacheManager", "Lease", "NoPrefixCache", "PrefixCache", "RadixPrefixCache", "SlotAllocator"]
