#!/bin/sh
# embed.sh PROGRAM OUTPUT - writes an assembler file that holds the bytes of a program.
set -eu
cat >"$2" <<END
    .section .rodata
    .global zygote_blob, zygote_blob_size
    .balign 4096
zygote_blob:
    .incbin "$(realpath "$1")"
0:  .balign 8
zygote_blob_size:
    .quad 0b - zygote_blob
    .section .note.GNU-stack, "", %progbits
END
