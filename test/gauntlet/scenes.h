/* The scenes, by system; each list is a file. */
#ifndef KVP_TEST_GAUNTLET_SCENES_H
#define KVP_TEST_GAUNTLET_SCENES_H

#include "gauntlet.h"

extern const scene_list nano_scenes;   /* minivllm, nano-vllm */
extern const scene_list tvm_scenes;    /* TVM, MLC-LLM */
extern const scene_list vllm_scenes;   /* vLLM: blocks, hits, windows, keys */
extern const scene_list engine_scenes; /* of several systems: schedulers, transfers */
extern const scene_list peer_scenes;   /* SGLang and others */
extern const scene_list hybrid_scenes; /* llama.cpp, vLLM: recurrent state beside attention */
extern const scene_list late_scenes;   /* of several systems: work that runs late */

#endif
