"""Documents that an agent can look things up in: parsed, cut, indexed, searched, asked about."""
