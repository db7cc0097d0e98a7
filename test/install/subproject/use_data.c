/* A program that needs both libraries: the bytes of an element, and the version. */
#include <kvpager/memory.h>
#include <stdio.h>

int main(void)
{
    if (kvp_type_bytes(KVP_BF16) != 2)
        return 1;
    printf("kvpager %s\n", kvp_version());
    return 0;
}
