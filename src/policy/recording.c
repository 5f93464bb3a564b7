/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "policy/recording.h"

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

void wb_recording_rules_deinit(struct wb_recording_rules *rules)
{
    g_clear_pointer(&rules->list, g_ptr_array_unref);
}

const struct wb_path_rule *wb_recording_rules_find(const struct wb_recording_rules *rules, const char *path,
                                                   bool is_directory)
{
    const struct wb_path_rule *rule = NULL;

    if (!rules->list)
        return NULL;
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        g_autofree char *above = g_strndup(path, (gsize)(slash - path));

        rule = wb_path_rules_find(rules->list, above, true);
        if (rule && rule->setting == WB_RECORDING_NONE)
            return rule;
    }
    return wb_path_rules_find(rules->list, path, is_directory);
}
