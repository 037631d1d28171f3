"""One module or package per protocol. They never import each other; they meet in the stack."""
