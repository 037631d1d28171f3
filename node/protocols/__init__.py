"""One module or package per protocol. They never import each other; the stack connects them."""
