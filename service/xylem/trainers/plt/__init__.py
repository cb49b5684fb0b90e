"""Trainer `plt`, and the kernel of its gradient descent: `fobos`."""
