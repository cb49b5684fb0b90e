"""Who may ask for what: keys with scopes, what is open without one, and
a log of what admins did. No HTTP.
"""
