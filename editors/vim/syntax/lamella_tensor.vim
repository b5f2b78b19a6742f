" Tensor language: written by editors/generate.py from the tables of the lexer.
if exists("b:current_syntax") | finish | endif
setlocal commentstring=;\ %s
syntax keyword lamellaKeyword alignment alloca as atomic_add atomic_max atomic_min attributes axpby barrier bf16 bool c32
syntax keyword lamellaKeyword c64 cast constant cooperative_matrix_apply cooperative_matrix_construct cooperative_matrix_extract cooperative_matrix_insert cooperative_matrix_load cooperative_matrix_mul_add cooperative_matrix_reduce_add cooperative_matrix_reduce_max cooperative_matrix_reduce_min
syntax keyword lamellaKeyword cooperative_matrix_scale cooperative_matrix_store coopmatrix cumsum else expand f16 f32 f64 f8e4m3 f8e5m2 false
syntax keyword lamellaKeyword for foreach foreach_tile func fuse gemm gemv ger global group hadamard i16
syntax keyword lamellaKeyword i32 i64 i8 if index init lifetime_stop load local matrix_a matrix_acc matrix_b
syntax keyword lamellaKeyword memref offset parallel shape_gcd size store stride_gcd strided subgroup_broadcast subgroup_size subview sum
syntax keyword lamellaKeyword true unroll work_group_size yield
syntax match lamellaKeyword /\Varith.abs\>/
syntax match lamellaKeyword /\Varith.add\>/
syntax match lamellaKeyword /\Varith.and\>/
syntax match lamellaKeyword /\Varith.conj\>/
syntax match lamellaKeyword /\Varith.div\>/
syntax match lamellaKeyword /\Varith.fma\>/
syntax match lamellaKeyword /\Varith.im\>/
syntax match lamellaKeyword /\Varith.max\>/
syntax match lamellaKeyword /\Varith.min\>/
syntax match lamellaKeyword /\Varith.mul\>/
syntax match lamellaKeyword /\Varith.neg\>/
syntax match lamellaKeyword /\Varith.not\>/
syntax match lamellaKeyword /\Varith.or\>/
syntax match lamellaKeyword /\Varith.re\>/
syntax match lamellaKeyword /\Varith.rem\>/
syntax match lamellaKeyword /\Varith.select\>/
syntax match lamellaKeyword /\Varith.shl\>/
syntax match lamellaKeyword /\Varith.shr\>/
syntax match lamellaKeyword /\Varith.sub\>/
syntax match lamellaKeyword /\Varith.xor\>/
syntax match lamellaKeyword /\Vbuiltin.group_id\>/
syntax match lamellaKeyword /\Vbuiltin.group_size\>/
syntax match lamellaKeyword /\Vbuiltin.num_subgroups\>/
syntax match lamellaKeyword /\Vbuiltin.subgroup_id\>/
syntax match lamellaKeyword /\Vbuiltin.subgroup_local_id\>/
syntax match lamellaKeyword /\Vbuiltin.subgroup_size\>/
syntax match lamellaKeyword /\Vcmp.eq\>/
syntax match lamellaKeyword /\Vcmp.ge\>/
syntax match lamellaKeyword /\Vcmp.gt\>/
syntax match lamellaKeyword /\Vcmp.le\>/
syntax match lamellaKeyword /\Vcmp.lt\>/
syntax match lamellaKeyword /\Vcmp.ne\>/
syntax match lamellaKeyword /\Vmath.acos\>/
syntax match lamellaKeyword /\Vmath.acosh\>/
syntax match lamellaKeyword /\Vmath.asin\>/
syntax match lamellaKeyword /\Vmath.asinh\>/
syntax match lamellaKeyword /\Vmath.atan\>/
syntax match lamellaKeyword /\Vmath.atanh\>/
syntax match lamellaKeyword /\Vmath.ceil\>/
syntax match lamellaKeyword /\Vmath.cos\>/
syntax match lamellaKeyword /\Vmath.cosh\>/
syntax match lamellaKeyword /\Vmath.erf\>/
syntax match lamellaKeyword /\Vmath.exp\>/
syntax match lamellaKeyword /\Vmath.exp2\>/
syntax match lamellaKeyword /\Vmath.floor\>/
syntax match lamellaKeyword /\Vmath.log\>/
syntax match lamellaKeyword /\Vmath.log2\>/
syntax match lamellaKeyword /\Vmath.native_cos\>/
syntax match lamellaKeyword /\Vmath.native_erf\>/
syntax match lamellaKeyword /\Vmath.native_exp\>/
syntax match lamellaKeyword /\Vmath.native_exp2\>/
syntax match lamellaKeyword /\Vmath.native_log\>/
syntax match lamellaKeyword /\Vmath.native_log2\>/
syntax match lamellaKeyword /\Vmath.native_sin\>/
syntax match lamellaKeyword /\Vmath.native_tanh\>/
syntax match lamellaKeyword /\Vmath.pow\>/
syntax match lamellaKeyword /\Vmath.round\>/
syntax match lamellaKeyword /\Vmath.rsqrt\>/
syntax match lamellaKeyword /\Vmath.sigmoid\>/
syntax match lamellaKeyword /\Vmath.sign\>/
syntax match lamellaKeyword /\Vmath.sin\>/
syntax match lamellaKeyword /\Vmath.sinh\>/
syntax match lamellaKeyword /\Vmath.sqrt\>/
syntax match lamellaKeyword /\Vmath.tan\>/
syntax match lamellaKeyword /\Vmath.tanh\>/
syntax match lamellaKeyword /\Vmath.trunc\>/
syntax match lamellaKeyword /\Vsubgroup_add.exclusive_scan\>/
syntax match lamellaKeyword /\Vsubgroup_add.inclusive_scan\>/
syntax match lamellaKeyword /\Vsubgroup_add.reduce\>/
syntax match lamellaKeyword /\Vsubgroup_max.exclusive_scan\>/
syntax match lamellaKeyword /\Vsubgroup_max.inclusive_scan\>/
syntax match lamellaKeyword /\Vsubgroup_max.reduce\>/
syntax match lamellaKeyword /\Vsubgroup_min.exclusive_scan\>/
syntax match lamellaKeyword /\Vsubgroup_min.inclusive_scan\>/
syntax match lamellaKeyword /\Vsubgroup_min.reduce\>/
syntax match lamellaNumber /\<[0-9][0-9_]*\(\.[0-9]\+\)\?\([eE][+-]\?[0-9]\+\)\?\>/
syntax match lamellaName /[%@][A-Za-z0-9_]\+/
syntax region lamellaString start=/"/ skip=/\\"/ end=/"/ oneline
syntax match lamellaComment /;.*$/
highlight default link lamellaKeyword Keyword
highlight default link lamellaNumber Number
highlight default link lamellaString String
highlight default link lamellaComment Comment
highlight default link lamellaName Identifier
let b:current_syntax = "lamella_tensor"
