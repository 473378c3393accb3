"""One step, one loop, one engine: the only place where scheduler and runner meet."""
