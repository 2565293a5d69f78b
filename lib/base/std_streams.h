/* std_streams - descriptors 0, 1 and 2 are somebody's own. */
#ifndef DOVELANE_LIB_BASE_STD_STREAMS_H
#define DOVELANE_LIB_BASE_STD_STREAMS_H

/* First in main. Where the caller closed one of the three (`dovelane ... >&-`), the next file or
 * connection would get its number, and what is printed would go there. Afterwards all three are
 * open; one that was closed can neither be read from nor be written to, as before. */
void std_streams_keep(void);

#endif
