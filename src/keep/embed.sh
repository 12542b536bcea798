#!/bin/sh
# embed.sh FILE OUTPUT [NAME] - writes an assembler file that holds the bytes of FILE, with a NUL behind
# them, as NAME and NAME_size.
set -eu
name=${3:-zygote_blob}
cat >"$2" <<END
    .section .rodata
    .global ${name}, ${name}_size
    .balign 4096
${name}:
    .incbin "$(realpath "$1")"
0:  .byte 0
    .balign 8
${name}_size:
    .quad 0b - ${name}
    .section .note.GNU-stack, "", %progbits
END
