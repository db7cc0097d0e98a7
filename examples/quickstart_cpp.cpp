/* Two prompts that share a prefix, as quickstart.c, with the owners of kvpager.hpp; and a fork. */
#include <kvpager/kvpager.hpp>

#include <array>
#include <cstdio>
#include <vector>

/* Whatever this returns, its sequences are closed: their full blocks stay cached. */
static kvpager::expected<> run_turn(kvpager::Cache &cache, kvpager::Namespace &model,
                                    const std::vector<std::int32_t> &tokens)
{
    auto opened = model.open(kvpager::make_prompt(tokens));
    if (!opened)
        return opened.status();
    kvpager::Sequence &seq = opened->sequence;
    std::printf("%u of %zu prompt tokens are cached\n", opened->info.cached_tokens, tokens.size());
    auto done =
        seq.commit(static_cast<std::uint32_t>(tokens.size())); /* the model ran on the rest */
    if (!done)
        return done;

    auto sample = seq.fork(); /* shares every block, also the last one, which is not full */
    if (!sample)
        return sample.status();
    const std::array<std::int32_t, 1> next = {7};
    if (done = sample->extend(next); !done)
        return done;
    std::array<kvp_copy, 8> plan{};
    auto n_copies = cache.take_plan(plan);
    if (!n_copies)
        return n_copies.status();
    for (const kvp_copy &copy : kvpager::span<const kvp_copy>(plan.data(), *n_copies))
        std::printf("copy %u slots of block %d to block %d\n", copy.n_tokens, copy.src_block,
                    copy.dst_block);
    return KVP_OK;
}

int main()
{
    auto cache = kvpager::Cache::create(kvpager::make_config()); /* 1,024 blocks of 16 tokens */
    if (!cache)
        return 1;
    auto model = cache->open_namespace("llama-8b"); /* after the cache: it goes before it */
    if (!model)
        return 1;
    std::vector<std::int32_t> tokens(100);
    for (int turn = 0; turn < 2; turn++) {
        tokens[99] = turn; /* the rest of the prompt stays the same */
        if (auto done = run_turn(*cache, *model, tokens); !done) {
            std::fprintf(stderr, "%s: %s\n", done.name(), done.text());
            return 1;
        }
    }
    auto stats = cache->stats();
    if (!stats)
        return 1;
    std::printf("%u sequences are open\n", static_cast<unsigned>(stats->open_seqs));
    return 0;
}
