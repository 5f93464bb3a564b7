/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "policy/compaction.h"

#include <string.h>

static const char *const names[WB_MODES] = {"none", "zstd", "delta", "delta+zstd"};

const char *wb_compact_mode_name(enum wb_compact_mode mode)
{
    return names[mode];
}

enum wb_compact_mode wb_compact_mode_find(const char *name)
{
    enum wb_compact_mode mode = WB_MODE_NONE;

    while (mode < WB_MODES && strcmp(names[mode], name) != 0)
        mode++;
    return mode;
}

void wb_compaction_deinit(struct wb_compaction *compaction)
{
    g_clear_pointer(&compaction->rules, g_ptr_array_unref);
}

bool wb_compaction_does_something(const struct wb_compaction *compaction)
{
    bool does = compaction->mode != WB_MODE_NONE;

    for (guint i = 0; !does && compaction->rules && i < compaction->rules->len; i++)
        does = ((const struct wb_path_rule *)g_ptr_array_index(compaction->rules, i))->setting != WB_MODE_NONE;
    return does;
}
