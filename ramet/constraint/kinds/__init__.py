"""One file for each kind of constraint: its text in, a compiled constraint out. The table is `constraint.compile.KINDS`."""
