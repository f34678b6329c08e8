// A command line to copy.
import { ActionIcon, CopyButton, Text, Tooltip } from '@mantine/core';
import { useTranslation } from 'react-i18next';
import { Icon } from './icons';

export function Command({ title, command }: { title: string; command: string }) {
  const { t } = useTranslation();
  return (
    <div>
      <Text size="sm" fw={600} mb={4}>
        {title}
      </Text>
      <div className="gm-command">
        <code>{command}</code>
        <CopyButton value={command}>
          {({ copied, copy }) => (
            <Tooltip label={copied ? t('why.copied') : t('why.copy')}>
              <ActionIcon variant="subtle" color="gray" onClick={copy} aria-label={copied ? t('why.copied') : t('why.copy')}>
                <Icon name={copied ? 'check' : 'copy'} size={16} />
              </ActionIcon>
            </Tooltip>
          )}
        </CopyButton>
      </div>
    </div>
  );
}
