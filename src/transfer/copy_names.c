/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "transfer/copy_names.h"

#include <errno.h>
#include <string.h>

/* What is kept of a name; it follows, without its end. */
struct entry {
    uint64_t next;
    struct wb_object dir;
    uint64_t length;
};

int wb_copy_names_init(struct wb_copy_names *names, int dir_fd)
{
    /* Nothing is at 0. */
    return wb_scratch_init(&names->entries, dir_fd, 1);
}

void wb_copy_names_deinit(struct wb_copy_names *names)
{
    wb_scratch_deinit(&names->entries);
}

static int get(const struct wb_copy_names *names, uint64_t at, struct entry *entry, char name[WB_NAME_MAX + 1])
{
    int r = wb_scratch_read(&names->entries, entry, sizeof(*entry), at);

    if (r == 0)
        r = wb_scratch_read(&names->entries, name, entry->length, at + sizeof(*entry));
    if (r == 0)
        name[entry->length] = '\0';
    return r;
}

int wb_copy_names_get(const struct wb_copy_names *names, uint64_t at, struct wb_copy_name *ret)
{
    struct entry entry;
    int r = get(names, at, &entry, ret->name);

    if (r == 0)
        ret->dir = entry.dir;
    return r;
}

int wb_copy_names_add(struct wb_copy_names *names, uint64_t *list, struct wb_object dir, const char *name)
{
    struct entry entry = {.next = *list, .dir = dir, .length = strlen(name)};
    uint8_t data[sizeof(entry) + WB_NAME_MAX];

    if (entry.length > WB_NAME_MAX)
        return -ENAMETOOLONG;
    memcpy(data, &entry, sizeof(entry));
    memcpy(data + sizeof(entry), name, entry.length);
    return wb_scratch_append(&names->entries, data, sizeof(entry) + entry.length, list);
}

int wb_copy_names_remove(struct wb_copy_names *names, uint64_t *list, struct wb_object dir, const char *name)
{
    uint64_t before = 0;

    for (uint64_t at = *list; at;) {
        char here[WB_NAME_MAX + 1];
        struct entry entry;
        int r = get(names, at, &entry, here);

        if (r < 0)
            return r;
        if (wb_object_equal(entry.dir, dir) && strcmp(here, name) == 0) {
            /* `next` is what an entry begins with. */
            if (before)
                return wb_scratch_write(&names->entries, &entry.next, sizeof(entry.next), before);
            *list = entry.next;
            return 0;
        }
        before = at;
        at = entry.next;
    }
    return 0;
}
