/* bench_noop.c - bench-noop FD: a static program that does what no program can start without. It
 * writes one byte to a descriptor and ends, so that the start of the guest has a floor beside it.
 */
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) { return argc == 2 && write(atoi(argv[1]), "\n", 1) == 1 ? 0 : 1; }
