"""Access: keys with scopes, scopes that are open without a key, and the audit log. No HTTP."""
