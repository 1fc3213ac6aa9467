"""May a node, a card or a namespace take one request, and if not, why: rules, and the words for them."""
