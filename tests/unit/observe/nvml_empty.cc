// A library that loads, and is not the one that was looked for.
extern "C" int NothingOfUse() { return 0; }
