/* kvpager/sized/sched.h: calls of sched.h that give or fill structs which may
 * grow. The functions that programs call pass the size that they know to the exported ones.
 * docs/ABI.md says why; sched.h says what each call does, and includes this. */
#ifndef KVPAGER_SIZED_SCHED_H
#define KVPAGER_SIZED_SCHED_H

KVP_API void kvp_sched_config_init_sized(kvp_sched_config *config, size_t config_size);
KVP_SIZED void kvp_sched_config_init(kvp_sched_config *config)
{
    kvp_sched_config_init_sized(config, sizeof *config);
}

KVP_API kvp_status kvp_sched_step_sized(kvp_sched *sched, kvp_step *out_step, size_t step_size);
KVP_SIZED kvp_status kvp_sched_step(kvp_sched *sched, kvp_step *out_step)
{
    return kvp_sched_step_sized(sched, out_step, sizeof *out_step);
}

KVP_API kvp_status kvp_sched_finish_sized(kvp_sched *sched, const int32_t *tokens,
                                          const uint8_t *ended, kvp_step_end *out_end,
                                          size_t end_size);
KVP_SIZED kvp_status kvp_sched_finish(kvp_sched *sched, const int32_t *tokens, const uint8_t *ended,
                                      kvp_step_end *out_end)
{
    return kvp_sched_finish_sized(sched, tokens, ended, out_end, sizeof *out_end);
}

KVP_API kvp_status kvp_sched_finish_drafts_sized(kvp_sched *sched, const int32_t *tokens,
                                                 const uint32_t *counts, const uint8_t *ended,
                                                 kvp_step_end *out_end, size_t end_size);
KVP_SIZED kvp_status kvp_sched_finish_drafts(kvp_sched *sched, const int32_t *tokens,
                                             const uint32_t *counts, const uint8_t *ended,
                                             kvp_step_end *out_end)
{
    return kvp_sched_finish_drafts_sized(sched, tokens, counts, ended, out_end, sizeof *out_end);
}

KVP_API kvp_status kvp_sched_tick_sized(kvp_sched *sched, uint64_t now,
                                        kvp_sched_expired *out_expired, size_t expired_size);
KVP_SIZED kvp_status kvp_sched_tick(kvp_sched *sched, uint64_t now, kvp_sched_expired *out_expired)
{
    return kvp_sched_tick_sized(sched, now, out_expired, sizeof *out_expired);
}

KVP_API kvp_status kvp_request_info_get_sized(const kvp_sched *sched, kvp_request request,
                                              kvp_request_info *out_info, size_t info_size);
KVP_SIZED kvp_status kvp_request_info_get(const kvp_sched *sched, kvp_request request,
                                          kvp_request_info *out_info)
{
    return kvp_request_info_get_sized(sched, request, out_info, sizeof *out_info);
}

KVP_API kvp_status kvp_request_sample_sized(const kvp_sched *sched, kvp_request request,
                                            uint32_t sample, kvp_sample_info *out_info,
                                            size_t info_size);
KVP_SIZED kvp_status kvp_request_sample(const kvp_sched *sched, kvp_request request,
                                        uint32_t sample, kvp_sample_info *out_info)
{
    return kvp_request_sample_sized(sched, request, sample, out_info, sizeof *out_info);
}

KVP_API kvp_status kvp_sched_stats_get_sized(const kvp_sched *sched, kvp_sched_stats *out_stats,
                                             size_t stats_size);
KVP_SIZED kvp_status kvp_sched_stats_get(const kvp_sched *sched, kvp_sched_stats *out_stats)
{
    return kvp_sched_stats_get_sized(sched, out_stats, sizeof *out_stats);
}

#endif
