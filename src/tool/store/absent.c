/* kvpager store, in a build without stores. */
#include "tool/tool.h"

int cmd_store(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return kvpi_tool_fail("store", "this kvpager was built without stores: build it where "
                                   "libcrypto 3.0 is installed (Debian: libssl-dev)");
}
