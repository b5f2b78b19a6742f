" Module DSL: written by editors/generate.py from the tables of the lexer.
if exists("b:current_syntax") | finish | endif
setlocal commentstring=#\ %s
syntax keyword lamellaKeyword None abstract and backward bf16 block bool constants constraint dict dtype elif
syntax keyword lamellaKeyword else enum export false float forward fp16 fp32 fp4_e2m1 fp64 fp8_e4m3 fp8_e5m2
syntax keyword lamellaKeyword from graph groups hf_config hf_export hf_mapping if import inputs int int16 int32
syntax keyword lamellaKeyword int4 int64 int8 let model module not or outputs param_mapping params pattern
syntax keyword lamellaKeyword preset primitive recipe string sublayers topology true uint8 verify_backward
syntax match lamellaNumber /\<[0-9][0-9_]*\(\.[0-9]\+\)\?\([eE][+-]\?[0-9]\+\)\?\>/
syntax match lamellaName /[%@][A-Za-z0-9_]\+/
syntax region lamellaString start=/"/ skip=/\\"/ end=/"/ oneline
syntax match lamellaComment /#.*$/
syntax region lamellaString start=/"""/ end=/"""/
highlight default link lamellaKeyword Keyword
highlight default link lamellaNumber Number
highlight default link lamellaString String
highlight default link lamellaComment Comment
highlight default link lamellaName Identifier
let b:current_syntax = "lamella_module"
