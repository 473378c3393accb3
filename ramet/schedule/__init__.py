"""Which requests run next. No torch: everything here is tested over a shadow pool."""
