/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/*
 * What restore.c leaves for recovery: an object on its way from the graveyard to a taken name
 * has a temporary name in the store. A crash must not leave it there, where nobody looks for it.
 */

#include "store/store.h"

#define WB_RESTORE_TEMP_MAX (WB_OBJECT_TEXT_MAX + 16)
void wb_restore_temp_name(struct wb_object object, char name[WB_RESTORE_TEMP_MAX]);

/* Puts an object that has a temporary name back into the graveyard. 0 also if there was none. */
int wb_restore_take_back(struct wb_store *store, struct wb_object object);
