/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "keep/compaction.h"

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

static void free_rule(gpointer data)
{
    struct wb_compaction_rule *rule = data;

    wb_patterns_free(rule->patterns);
    g_free(rule->title);
    g_free(rule);
}

void wb_compaction_init(struct wb_compaction *compaction)
{
    *compaction = (struct wb_compaction){.mode = WB_MODE_DELTA_ZSTD, .rest = 300};
}

void wb_compaction_deinit(struct wb_compaction *compaction)
{
    g_clear_pointer(&compaction->rules, g_ptr_array_unref);
}

void wb_compaction_add(struct wb_compaction *compaction, const char *title, unsigned line,
                       struct wb_patterns *patterns, enum wb_compact_mode mode)
{
    struct wb_compaction_rule *rule = g_new0(struct wb_compaction_rule, 1);

    *rule = (struct wb_compaction_rule){g_strdup(title), line, patterns, mode};
    if (!compaction->rules)
        compaction->rules = g_ptr_array_new_with_free_func(free_rule);
    g_ptr_array_add(compaction->rules, rule);
}

const struct wb_compaction_rule *wb_compaction_find(const struct wb_compaction *compaction, const char *path,
                                                    bool is_directory)
{
    for (guint i = compaction->rules ? compaction->rules->len : 0; i-- > 0;) {
        const struct wb_compaction_rule *rule = g_ptr_array_index(compaction->rules, i);

        if (wb_patterns_match(rule->patterns, path, is_directory))
            return rule;
    }
    return NULL;
}

bool wb_compaction_does_something(const struct wb_compaction *compaction)
{
    bool does = compaction->mode != WB_MODE_NONE;

    for (guint i = 0; !does && compaction->rules && i < compaction->rules->len; i++)
        does = ((const struct wb_compaction_rule *)g_ptr_array_index(compaction->rules, i))->mode != WB_MODE_NONE;
    return does;
}
