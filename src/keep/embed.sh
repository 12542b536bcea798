#!/bin/sh
# embed.sh PROGRAM OUTPUT - writes an assembler file that holds the bytes of a program.
set -eu
cat >"$2" <<END
    .section .rodata
    .global zygote_blob, zygote_blob_end
    .balign 4096
zygote_blob:
    .incbin "$(realpath "$1")"
zygote_blob_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
END
