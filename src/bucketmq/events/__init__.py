"""What happened to objects: events, where they come from on the wire, filters, rules. Pure: no clock, chance or I/O."""
