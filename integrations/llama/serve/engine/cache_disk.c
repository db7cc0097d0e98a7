/* cache_disk: the option as a store's URL, salts as names. */
#include "cache_disk.h"

#include "../../src/models.h"

#include <stdio.h>
#include <string.h>

static const char field[] = "--cache-disk";

static int refuse(kvp_why *why, const char *text)
{
    (void)kvpi_models_say(why, field, text);
    return -1;
}

#ifdef KVP_SERVE_DISK

int kvpi_cache_disk_open(kvp_llama *engine, const kvpi_options *options, const char *identity,
                         kvp_why *out_why)
{
    enum { URL_BYTES = 4096 };
    char url[URL_BYTES];
    kvp_llama_disk_config config;
    if (options->cache_disk == NULL)
        return 0;
    if (strchr(options->cache_disk, '?') != NULL)
        return refuse(out_why, "its name has a '?', which ends the path in a store's URL");
    const int n = snprintf(url, sizeof url, "file:%s?size=%llu", options->cache_disk,
                           (unsigned long long)options->cache_disk_size);
    if (n < 0 || n >= URL_BYTES)
        return refuse(out_why, "its name is too long");
    kvp_llama_disk_config_init(&config);
    config.url = url;
    config.model = identity;
    const kvp_status status = kvp_llama_disk_open(engine, &config, out_why);
    if (status == KVP_OK)
        return 0;
    char text[sizeof out_why->text];
    (void)snprintf(text, sizeof text, "%s",
                   out_why->text[0] != '\0' ? out_why->text : kvp_status_text(status));
    return refuse(out_why, text);
}

/* Without a name the salt's requests are not on the disk: nothing else is wrong then. */
void kvpi_cache_disk_enter(kvp_llama *engine, kvp_ns ns, const char *salt, size_t salt_bytes)
{
    (void)kvp_llama_disk_space(engine, ns, salt, salt_bytes, 0);
}

void kvpi_cache_disk_leave(kvp_llama *engine, kvp_ns ns)
{
    kvp_llama_disk_space_close(engine, ns);
}

void kvpi_cache_disk_figures(const kvp_llama *engine, kvp_llama_disk_stats *out_stats)
{
    kvp_llama_disk_stats_get(engine, out_stats);
}

#else

int kvpi_cache_disk_open(kvp_llama *engine, const kvpi_options *options, const char *identity,
                         kvp_why *out_why)
{
    (void)engine, (void)identity;
    return options->cache_disk == NULL
               ? 0
               : refuse(out_why, "this build has no stores: libkvpager_store was left out");
}

void kvpi_cache_disk_enter(kvp_llama *engine, kvp_ns ns, const char *salt, size_t salt_bytes)
{
    (void)engine, (void)ns, (void)salt, (void)salt_bytes;
}

void kvpi_cache_disk_leave(kvp_llama *engine, kvp_ns ns)
{
    (void)engine, (void)ns;
}

void kvpi_cache_disk_figures(const kvp_llama *engine, kvp_llama_disk_stats *out_stats)
{
    (void)engine;
    memset(out_stats, 0, sizeof *out_stats);
}

#endif
