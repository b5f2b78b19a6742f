"""The language server: what editors ask about the four text languages, over the Language Server Protocol.

`workspace` holds the texts, `index` what their names mean, one module for each language tells what its nodes define
and use, `features` answers in our own terms, and `server` speaks the protocol.
"""
