" NEM: written by editors/generate.py from the tables of the lexer.
if exists("b:current_syntax") | finish | endif
setlocal commentstring=#\ %s
syntax keyword lamellaKeyword CSTL DDR DMA L1 L2 NMU SEQ VPU WDM bf16 buffer const
syntax keyword lamellaKeyword deps device elem endloop extends f16 f32 i16 i32 i4 i8 in
syntax keyword lamellaKeyword include layout let loop mod out program quant region sDMA shape strides
syntax keyword lamellaKeyword type_family u16 u32 u8 wait
syntax match lamellaNumber /\<[0-9][0-9_]*\(\.[0-9]\+\)\?\([eE][+-]\?[0-9]\+\)\?\>/
syntax match lamellaName /[%@][A-Za-z0-9_]\+/
syntax region lamellaString start=/"/ skip=/\\"/ end=/"/ oneline
syntax match lamellaComment /#.*$/
highlight default link lamellaKeyword Keyword
highlight default link lamellaNumber Number
highlight default link lamellaString String
highlight default link lamellaComment Comment
highlight default link lamellaName Identifier
let b:current_syntax = "nem"
