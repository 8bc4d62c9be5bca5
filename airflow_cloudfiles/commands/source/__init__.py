"""Commands for where files come from: discovery, notifications, event logs."""
