"""Optional parts: each is for few users, or needs an optional dependency. Nothing else imports them."""
