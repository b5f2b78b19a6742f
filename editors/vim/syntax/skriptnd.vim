" SkriptND: written by editors/generate.py from the tables of the lexer.
if exists("b:current_syntax") | finish | endif
setlocal commentstring=#\ %s
syntax keyword lamellaKeyword arith as bool do dynamic elif else false for graph if import
syntax keyword lamellaKeyword in inf int is num operator optional pi public real static str
syntax keyword lamellaKeyword then true type unroll while with yield
syntax match lamellaKeyword /\V@assert\>/
syntax match lamellaKeyword /\V@attrib\>/
syntax match lamellaKeyword /\V@compose\>/
syntax match lamellaKeyword /\V@constant\>/
syntax match lamellaKeyword /\V@dtype\>/
syntax match lamellaKeyword /\V@input\>/
syntax match lamellaKeyword /\V@lower\>/
syntax match lamellaKeyword /\V@output\>/
syntax match lamellaKeyword /\V@quantize\>/
syntax match lamellaKeyword /\V@update\>/
syntax match lamellaKeyword /\V@using\>/
syntax match lamellaKeyword /\V@variable\>/
syntax match lamellaNumber /\<[0-9][0-9_]*\(\.[0-9]\+\)\?\([eE][+-]\?[0-9]\+\)\?\>/
syntax match lamellaName /[%@][A-Za-z0-9_]\+/
syntax region lamellaString start=/"/ skip=/\\"/ end=/"/ oneline
syntax match lamellaComment /#.*$/
highlight default link lamellaKeyword Keyword
highlight default link lamellaNumber Number
highlight default link lamellaString String
highlight default link lamellaComment Comment
highlight default link lamellaName Identifier
let b:current_syntax = "skriptnd"
