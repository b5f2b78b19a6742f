"""How the words of a text become ids: byte pairs, word pieces, the likeliest pieces."""
