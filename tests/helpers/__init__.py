"""What several tests share: servers, files, databases, browsers and processes of their own."""
