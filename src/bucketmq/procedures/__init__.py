"""How it is done: generators that ask (Get, Create, Replace, ...) and never do. Engines run them."""
