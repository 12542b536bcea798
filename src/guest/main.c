/* main.c - cove-guest as a program of its own, for any Linux machine. In sandboxes zygote/main.c is
 * its beginning. */
#include "guest/serve.h"

int main(int argc, char **argv) { return guest_main(argc, argv); }
