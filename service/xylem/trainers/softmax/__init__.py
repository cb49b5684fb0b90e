"""Trainers `huffman-tree` and `learned-tree`, and their kernels: `tree`, `dealing`,
`assignment`.
"""
