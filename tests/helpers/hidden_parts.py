"""Hide inner parts of numba from the decorators of kernels, while these are imported.

Numba itself still has these parts.
"""

IMPORT_WITHOUT = '''
import importlib, sys, types

def import_without(*parts):
    """Import the decorators of kernels without each `module:name` or `module:Class.name`."""
    modules = dict(sys.modules)
    for part in parts:
        module_name, _, path = part.partition(":")
        module = importlib.import_module(module_name)
        modules[module_name] = modules.get(module_name, module)
        copied = types.ModuleType(module_name)
        vars(copied).update(vars(module))
        name, _, member = path.partition(".")
        hidden = vars(copied).pop(name, None)
        if member:
            names = [n for n in dir(hidden) if n != member and not n.startswith("__")]
            attributes = {n: getattr(hidden, n) for n in names}
            setattr(copied, name, type(name, (), attributes))
        sys.modules[module_name] = copied
    import xylem_store.compiled.decorators
    pairs = map(lambda part: part.split(":"), parts)
    sys.modules.update({name: modules[name] for name, _ in pairs})
'''
