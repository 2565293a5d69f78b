#include "lib/base/program_name.h"

static const char *program = "dovelane";

void program_name_set(const char *name)
{
    program = name;
}

const char *program_name(void)
{
    return program;
}
