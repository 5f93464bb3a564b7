/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "keep/recording.h"

#include <string.h>

static const char *const names[WB_RECORDINGS] = {"write", "close", "none"};

const char *wb_recording_name(enum wb_recording recording)
{
    return names[recording];
}

enum wb_recording wb_recording_find(const char *name)
{
    enum wb_recording recording = WB_RECORDING_WRITE;

    while (recording < WB_RECORDINGS && strcmp(names[recording], name) != 0)
        recording++;
    return recording;
}

static void free_rule(gpointer data)
{
    struct wb_recording_rule *rule = data;

    wb_patterns_free(rule->patterns);
    g_free(rule->title);
    g_free(rule);
}

void wb_recording_rules_deinit(struct wb_recording_rules *rules)
{
    g_clear_pointer(&rules->list, g_ptr_array_unref);
}

void wb_recording_rules_add(struct wb_recording_rules *rules, const char *title, unsigned line,
                            struct wb_patterns *patterns, enum wb_recording recording)
{
    struct wb_recording_rule *rule = g_new0(struct wb_recording_rule, 1);

    *rule = (struct wb_recording_rule){g_strdup(title), line, patterns, recording};
    if (!rules->list)
        rules->list = g_ptr_array_new_with_free_func(free_rule);
    g_ptr_array_add(rules->list, rule);
}

static const struct wb_recording_rule *find(const struct wb_recording_rules *rules, const char *path, bool is_directory)
{
    for (guint i = rules->list ? rules->list->len : 0; i-- > 0;) {
        const struct wb_recording_rule *rule = g_ptr_array_index(rules->list, i);

        if (wb_patterns_match(rule->patterns, path, is_directory))
            return rule;
    }
    return NULL;
}

const struct wb_recording_rule *wb_recording_rules_find(const struct wb_recording_rules *rules, const char *path,
                                                        bool is_directory)
{
    const struct wb_recording_rule *rule = NULL;

    if (!rules->list)
        return NULL;
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        g_autofree char *above = g_strndup(path, (gsize)(slash - path));

        rule = find(rules, above, true);
        if (rule && rule->recording == WB_RECORDING_NONE)
            return rule;
    }
    return find(rules, path, is_directory);
}
