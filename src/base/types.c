/* types: the status table as functions, and the version. */
#include <kvpager/types.h>

const char *kvp_status_name(kvp_status status)
{
    switch (status) {
#define NAME(name, number, class_, text)                                                           \
    case KVP_##name: return "KVP_" #name;
        KVP_STATUS_TABLE(NAME)
#undef NAME
    }
    return "KVP_E_?";
}

const char *kvp_status_text(kvp_status status)
{
    switch (status) {
#define TEXT(name, number, class_, text)                                                           \
    case KVP_##name: return text;
        KVP_STATUS_TABLE(TEXT)
#undef TEXT
    }
    return "not a status of this library";
}

int kvp_status_class(kvp_status status)
{
    switch (status) {
#define CLASS(name, number, class_, text)                                                          \
    case KVP_##name: return KVP_CLASS_##class_;
        KVP_STATUS_TABLE(CLASS)
#undef CLASS
    }
    return KVP_CLASS_SYSTEM;
}

const char *kvp_version(void)
{
    return KVP_VERSION;
}
