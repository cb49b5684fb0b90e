"""Trainers `huffman-tree` and `learned-tree`, and their kernels: `tree`, `known`, `dealing`,
`assignment`.
"""
