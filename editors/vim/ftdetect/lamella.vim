autocmd BufRead,BufNewFile *.module setfiletype lamella_module
autocmd BufRead,BufNewFile *.sknd setfiletype skriptnd
autocmd BufRead,BufNewFile *.tensor setfiletype lamella_tensor
autocmd BufRead,BufNewFile *.nem setfiletype nem
