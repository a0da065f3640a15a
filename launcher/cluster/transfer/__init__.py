"""What travels between the operator's machine and the nodes.

- To the nodes: `code` and `data` list what travels as a `FileTree` (`file_tree`), `upload` brings it there; the part
  that runs on the nodes is `launcher/on_node/tree_store.py`. `checkpoint` brings what a job continues from.
- From the nodes: `download` fetches results.
"""
