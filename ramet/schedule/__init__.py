"""Which requests run next. No torch: everything here is tested with a fake clock."""
