/* main.c - cove-guest. */
int main(void) { return 0; }
