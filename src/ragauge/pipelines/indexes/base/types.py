"""Index types by name: the recipe of a configuration's index, and that of a merged index."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, GetJsonSchemaHandler, SerializeAsAny
from pydantic_core import CoreSchema, core_schema

from ragauge import registry
from ragauge.errors import SettingError, unknown
from ragauge.pipelines.indexes.base.recipe import DEFAULT_TYPE, IndexRecipe


def recipe_class(name: str) -> type[IndexRecipe]:
    """Return the recipe of an index type.

    Raises:
        UserError: there is none, with the choices.
    """
    return registry.component("index", name, IndexRecipe)


def read_recipe(manifest: Mapping[str, Any], shards: int) -> IndexRecipe:
    """Return the recipe that a merged index of a database of so many shards was made with, from its
    manifest.
    """
    made_from = manifest["made_from"]
    recipe = recipe_class(made_from["type"])
    keys = {key: made_from[key] for key in recipe.model_fields if key in made_from}
    indexed = len(made_from["embeddings"])  # the key itself holds the shards' identities
    keys["shards"] = indexed if indexed < shards else None
    if recipe.NPROBE_KEY:
        keys[recipe.NPROBE_KEY] = manifest[recipe.NPROBE_KEY]
    return recipe.model_validate(keys)


def _validate_by_type(data: Any) -> Any:
    """Validate a mapping as the recipe of the type that it names."""
    if not isinstance(data, dict):
        return data
    name = data.get("type", DEFAULT_TYPE)
    choices = registry.names("index")
    if name not in choices:
        raise SettingError("type", str(unknown("index type", name, choices)))
    return recipe_class(name).model_validate(data)


class _AnyType:
    """JSON schema: one of the existing recipes."""

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> Any:
        schemas = [recipe_class(name).__pydantic_core_schema__ for name in registry.names("index")]
        return handler(core_schema.union_schema(list(schemas)))


AnyIndexRecipe = Annotated[
    SerializeAsAny[IndexRecipe], BeforeValidator(_validate_by_type), _AnyType()
]
