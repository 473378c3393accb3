"""The command line: arguments to options, options to one call."""
