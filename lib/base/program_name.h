/* program_name - which program this is. */
#ifndef DOVELANE_LIB_BASE_PROGRAM_NAME_H
#define DOVELANE_LIB_BASE_PROGRAM_NAME_H

/* "dovelane-relay". Once, at the start of main; the text must stay. */
void program_name_set(const char *name);
const char *program_name(void); /* "dovelane", the admin's command, before that */

#endif
