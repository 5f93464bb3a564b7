/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "policy/path_rules.h"

static void free_rule(gpointer data)
{
    struct wb_path_rule *rule = data;

    wb_patterns_free(rule->patterns);
    g_free(rule->title);
    g_free(rule);
}

void wb_path_rules_add(GPtrArray **rules, const char *title, unsigned line, struct wb_patterns *patterns,
                       unsigned setting)
{
    struct wb_path_rule *rule = g_new0(struct wb_path_rule, 1);

    *rule = (struct wb_path_rule){g_strdup(title), line, patterns, setting};
    if (!*rules)
        *rules = g_ptr_array_new_with_free_func(free_rule);
    g_ptr_array_add(*rules, rule);
}

const struct wb_path_rule *wb_path_rules_find(const GPtrArray *rules, const char *path, bool is_directory)
{
    for (guint i = rules ? rules->len : 0; i-- > 0;) {
        const struct wb_path_rule *rule = g_ptr_array_index(rules, i);

        if (wb_patterns_match(rule->patterns, path, is_directory))
            return rule;
    }
    return NULL;
}
